// Calls the API of the server under test, and pushes to its repositories.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

export const url = required("GABLE_URL");
export const rootPassword = required("GABLE_ROOT_PASSWORD");
const rootToken = required("GABLE_ROOT_TOKEN");

/** The password of all users that the tests create. */
export const password = "correct-horse-battery";

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`the variable ${name} is not set; run \`cargo xtask test --web\``);
  return value;
}

/** Calls the API as a user; as the administrator without one. */
export async function api(method, path, fields, user = { token: rootToken }) {
  const response = await fetch(`${url}/api/v3${path}`, {
    method,
    headers: { "private-token": user.token, "content-type": "application/json" },
    body: fields && JSON.stringify(fields),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** Creates a user who can sign in, and returns it with a token. */
export async function createUser(username, name) {
  const email = `${username}@example.com`;
  const { id } = await api("POST", "/users", { username, name, email, password, confirm: false });
  const { private_token: token } = await api("POST", "/session", { login: username, password });
  return { id, username, name, email, token };
}

/**
 * Pushes commits to a repository, and returns the id of the last one.
 *
 * A commit is `{ message, author, date, files }`; a file is a text, a buffer, or `null` if it is removed. It may name a
 * `branch` to begin or continue, and a `tag` to create.
 */
export function push(project, user, commits) {
  const folder = mkdtempSync(join(tmpdir(), "gable-web-"));
  const git = (...args) => execFileSync("git", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  try {
    git("init", "--quiet", "--initial-branch", "main");
    for (const { message, author, date, files = {}, branch, tag } of commits) {
      if (branch) git("checkout", "--quiet", "-B", branch);
      for (const [path, content] of Object.entries(files)) {
        if (content === null) {
          rmSync(join(folder, path));
          continue;
        }
        mkdirSync(dirname(join(folder, path)), { recursive: true });
        writeFileSync(join(folder, path), content);
      }
      git("add", "--all");
      const identity = ["-c", `user.name=${author.name}`, "-c", `user.email=${author.email}`];
      git(...identity, "commit", "--quiet", "--allow-empty", "--date", date ?? "now", "--message", message);
      if (tag) git(...identity, "tag", "--annotate", "--message", tag, tag);
    }
    const head = git("rev-parse", "HEAD").trim();
    const remote = new URL(`${url}/${project}.git`);
    remote.username = user.username;
    remote.password = password;
    // The default branch is the first one that is pushed.
    git("push", "--quiet", remote.href, "main");
    git("push", "--quiet", remote.href, "--all");
    git("push", "--quiet", remote.href, "--tags");
    return head;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Waits until a condition returns something true, and returns that. */
export async function eventually(what, condition, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    const value = await condition();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`${what}: nothing after ${seconds} seconds`);
}
