// What people do with the web interface, with and without JavaScript.

import { generateKeyPairSync } from "node:crypto";

import { launch, signIn, visit } from "./browser.js";
import { api, createUser, eventually, password, url } from "./gable.js";
import { PNG } from "./instance.js";
import { check, test } from "./tests.js";

/** The stories: each opens its own windows with `open(username)`. */
const STORIES = {
  async "a visitor finds a project and reads its code"(open) {
    const page = await open();
    await page.goto("/");
    await page.getByRole("search").getByRole("searchbox").fill("rocket");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "acme/rocket" }).click();
    await expectHeading(page, /Rocket/);
    await page.getByRole("link", { name: "src", exact: true }).click();
    await page.getByRole("link", { name: "engine.rs", exact: true }).click();
    await expectText(page, "pub fn consumption");
    await page.getByRole("link", { name: "History" }).click();
    await page.getByRole("link", { name: "Add the engine" }).click();
    await expectText(page, "src/engine.rs");
  },

  async "a wrong password is refused, the right one leads back"(open) {
    const page = await open();
    await page.goto("/acme/rocket/-/issues/new");
    check(page.url().includes("/users/sign_in"), `not asked to sign in: ${page.url()}`);
    await page.getByLabel("Username or email").fill("dan");
    await page.getByLabel("Password").fill("wrong-password");
    await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
    check((await page.getByLabel("Username or email").inputValue()) === "dan", "the username was not kept");
    const again = await open();
    await again.goto("/acme/rocket/-/issues/new");
    await again.getByLabel("Username or email").fill("dan");
    await again.getByLabel("Password").fill("correct-horse-battery");
    await again.getByRole("main").getByRole("button", { name: "Sign in" }).click();
    check(again.url().endsWith("/acme/rocket/-/issues/new"), `not led back: ${again.url()}`);
  },

  async "a user reports an issue, a developer answers and closes it"(open, { rocket }) {
    const title = `It leaks ${Date.now()}`;
    const eve = await open("eve");
    await eve.goto("/acme/rocket/-/issues");
    await eve.getByRole("link", { name: "New issue" }).click();
    await eve.getByRole("button", { name: "Create issue" }).click();
    await eve.getByLabel("Title").fill(title);
    await eve.getByLabel(/^Description/).fill("Some **fuel** <script>alert(1)</script>");
    await eve.getByRole("button", { name: "Create issue" }).click();
    await expectHeading(eve, title);
    check((await eve.locator("strong", { hasText: "fuel" }).count()) === 1, "the Markdown is not rendered");
    const dan = await open("dan");
    await dan.goto(eve.url());
    await dan.getByLabel(/^Comment/).fill("Thank you.");
    await dan.getByRole("button", { name: "Close issue" }).click();
    await expectText(dan, "Thank you.");
    await eve.reload();
    await eve.getByRole("button", { name: "Reopen issue" }).click();
    const issues = await api("GET", `/projects/${rocket.id}/issues?state=opened`);
    check(issues.some((issue) => issue.title === title), "the issue is not open");
  },

  async "a reporter reports an issue with a label and a picture"(open) {
    const page = await open("eve");
    await page.goto("/acme/rocket");
    await page.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Issues" }).click();
    await page.getByRole("link", { name: "New issue" }).click();
    await page.getByLabel("Title").fill("The logo is only red");
    await page.getByLabel("bug", { exact: true }).check();
    await page.getByLabel("Attach files").setInputFiles({ name: "logo.png", mimeType: "image/png", buffer: PNG });
    await page.getByRole("button", { name: "Create issue" }).click();
    await expectHeading(page, "The logo is only red");
    await page.getByRole("main").getByRole("link", { name: "bug", exact: true }).first().waitFor();
    const picture = page.getByRole("img", { name: "logo" });
    check((await picture.evaluate((image) => image.decode().then(() => image.naturalWidth))) === 8, "no picture is shown");
  },

  async "a developer moves a card of the board"(open, { label, rocket, users }) {
    const title = `A card ${Date.now()}`;
    const issue = await api("POST", `/projects/${rocket.id}/issues`, { title }, users.dan);
    const page = await open("dan");
    await page.goto("/acme/rocket/-/boards");
    const column = page.getByRole("region", { name: label.name });
    const card = page.getByRole("listitem").filter({ hasText: title });
    const hasScript = (await card.getAttribute("draggable")) === "true";
    if (hasScript) await card.dragTo(column);
    else await card.getByRole("button", { name: `to ${label.name}` }).click();
    await column.getByRole("listitem").filter({ hasText: title }).waitFor();
    const { labels } = await api("GET", `/projects/${rocket.id}/issues/${issue.id}`);
    check(labels.includes(label.name), `labels ${labels}`);
  },

  async "a developer restores a deleted branch and finds its commit"(open, { secret, users }) {
    const name = `spare-${Date.now()}`;
    const repository = `/projects/${secret.id}/repository`;
    await api("POST", `${repository}/branches`, { branch_name: name, ref: "main" }, users.ann);
    const file = { file_path: name, branch_name: name, content: "spare", commit_message: `Try ${name}` };
    await api("POST", `${repository}/files`, file, users.ann);
    const page = await open("ann");
    await page.goto("/ann/secret/-/branches");
    await page.getByRole("button", { name: `Delete ${name}` }).click();
    await page.getByRole("link", { name: "activity", exact: true }).click();
    await page.getByRole("button", { name: `Restore ${name}` }).click();
    await page.getByRole("link", { name: `Try ${name}` }).first().click();
    await expectHeading(page, `Try ${name}`);
  },

  async "a user adds an SSH key and creates a token"(open) {
    const user = await createUser(`user${Date.now()}`, "New User");
    const page = await open(user.username);
    await page.getByRole("link", { name: user.username, exact: true }).click();
    await page.getByRole("link", { name: "Settings" }).click();
    const settings = page.getByRole("navigation", { name: "Settings" });
    await settings.getByRole("link", { name: "SSH keys" }).click();
    await page.getByLabel("Public key").fill("not a key");
    await page.getByRole("button", { name: "Add key" }).click();
    await page.locator("#key-error").waitFor();
    await page.getByLabel("Public key").fill(sshKey("laptop"));
    await page.getByRole("button", { name: "Add key" }).click();
    await page.getByRole("button", { name: "Remove laptop" }).waitFor();
    await settings.getByRole("link", { name: "Access tokens" }).click();
    await page.getByLabel("Name").fill("script");
    await page.getByLabel("Current password").fill(password);
    await page.getByRole("button", { name: "Create token" }).click();
    const token = await page.locator("code.secret").textContent();
    const response = await fetch(`${url}/api/v3/user`, { headers: { "private-token": token } });
    check((await response.json()).username === user.username, "the token does not work");
    await page.getByRole("button", { name: "Revoke script" }).click();
    const revoked = await fetch(`${url}/api/v3/user`, { headers: { "private-token": token } });
    check(revoked.status === 401, `status ${revoked.status} with a revoked token`);
  },

  async "a maintainer resends what a webhook did not receive"(open, { rocket, hook }) {
    const page = await open("ann");
    await page.goto("/acme/rocket");
    await page.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Settings" }).click();
    await page.getByRole("navigation", { name: "Settings" }).getByRole("link", { name: "Webhooks" }).click();
    await page.getByRole("link", { name: hook.url }).click();
    const deliveries = () => api("GET", `/projects/${rocket.id}/hooks/${hook.id}/deliveries`);
    const before = (await deliveries()).length;
    await page.getByRole("link", { name: /^Push Hook/ }).first().click();
    await page.getByRole("button", { name: "Resend" }).click();
    await eventually("another delivery", async () => (await deliveries()).length > before);
  },

  async "an administrator blocks a user, who is signed out"(open) {
    const user = await createUser(`guest${Date.now()}`, "Unwelcome Guest");
    const guest = await open(user.username);
    const root = await open("root");
    await root.getByRole("link", { name: "Admin" }).click();
    await root.getByRole("main").getByRole("link", { name: "Users" }).first().click();
    await root.getByLabel("Search", { exact: true }).last().fill(user.username);
    await root.getByRole("button", { name: "Show" }).click();
    await root.getByRole("link", { name: user.username, exact: true }).click();
    await root.getByRole("button", { name: "Block user" }).click();
    await root.getByRole("button", { name: "Unblock user" }).waitFor();
    await guest.goto("/dashboard");
    check(guest.url().includes("/users/sign_in"), `a blocked user sees ${guest.url()}`);
    await signIn(guest, user.username);
    await guest.getByRole("alert").waitFor();
  },

  async "a developer compares two branches"(open) {
    const page = await open("dan");
    await page.goto("/acme/rocket");
    await page.getByRole("link", { name: "Compare", exact: true }).click();
    await page.getByLabel("From").fill("main");
    await page.getByLabel("to", { exact: true }).fill("newtons");
    await page.getByRole("button", { name: "Compare" }).click();
    await expectText(page, "Measure the thrust in newtons");
    await expectText(page, "thrust.max(0.0)");
  },

  async "a developer finds out why a pipeline failed, and retries the job"(open, { pipeline }) {
    const page = await open("dan");
    await page.goto("/acme/rocket");
    await page.getByRole("link", { name: "Pipelines" }).click();
    await page.getByRole("link", { name: `#${pipeline.id}`, exact: true }).click();
    await expectText(page, "parachute_opens");
    await page.getByRole("link", { name: "unit tests" }).first().click();
    await expectHeading(page, /unit tests/);
    await page.getByRole("button", { name: "Retry", exact: true }).click();
    await expectText(page, "Attempts");
  },

  async "a visitor opens a file that a job has built"(open, { compiled }) {
    const page = await open();
    await page.goto(`/acme/rocket/-/jobs/${compiled.id}`);
    await page.getByRole("link", { name: "Browse", exact: true }).click();
    await page.getByRole("link", { name: "out", exact: true }).click();
    await page.getByRole("link", { name: "rocket", exact: true }).last().click();
    await expectText(page, "binary");
  },

  async "a user creates a project, adds a member and deletes it"(open) {
    const name = `probe-${Date.now()}`;
    const ann = await open("ann");
    await ann.goto("/dashboard");
    await ann.getByRole("link", { name: "New project" }).click();
    await ann.getByLabel("Namespace").selectOption("ann");
    await ann.getByLabel("Name", { exact: true }).fill(name);
    await ann.getByLabel("Visibility").selectOption("20");
    await ann.getByRole("button", { name: "Create project" }).click();
    await expectText(ann, "The repository is empty");
    await ann.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Settings" }).click();
    await ann.getByLabel("Description").fill("A small probe");
    await ann.getByRole("button", { name: "Save" }).click();
    await ann.getByRole("navigation", { name: "Settings" }).getByRole("link", { name: "Members" }).click();
    await ann.getByLabel("Find a user").fill("dan");
    await ann.getByRole("button", { name: "Find" }).click();
    await ann.getByRole("link", { name: "Choose @dan" }).click();
    await ann.getByLabel("Role", { exact: true }).selectOption("developer");
    await ann.getByRole("button", { name: "Add", exact: true }).click();
    await ann.getByRole("button", { name: "Remove dan" }).waitFor();
    const dan = await open("dan");
    await dan.goto(`/ann/${name}`);
    await expectText(dan, "A small probe");
    check((await dan.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Settings" }).count()) === 0, "a developer sees the settings");
    await ann.goto(`/ann/${name}/-/settings/general`);
    await ann.getByLabel("To confirm").fill(`ann/${name}`);
    await ann.getByRole("button", { name: "Delete project" }).click();
    const response = await dan.reload();
    check(response.status() === 404, `status ${response.status()}`);
  },

  async "a signed-out user cannot go back to private pages"(open) {
    const page = await open("ann");
    await page.goto("/ann/secret");
    await expectHeading(page, /Secret/);
    await page.getByRole("button", { name: "Sign out" }).click();
    const response = await page.goto("/ann/secret");
    check(response.status() === 404, `status ${response.status()}`);
  },

  async "a keyboard suffices to sign in and open a project"(open) {
    const page = await open();
    await signIn(page, "dan");
    await page.goto("/acme/rocket");
    await page.keyboard.press("Tab");
    check((await focusedText(page)) === "Skip to content", "the first link does not skip the navigation");
    await page.keyboard.press("Enter");
    const isMain = await page.evaluate(() => document.activeElement.id === "main");
    check(isMain, "the focus is not in the content");
  },

  async "a comment is shown before it is added"(open) {
    const page = await open("ann");
    await page.goto("/acme/rocket/-/issues/1");
    const field = page.getByRole("textbox", { name: /^Comment/ });
    await field.fill("It is **very loud**.");
    await page.getByRole("button", { name: "Preview" }).click();
    await page.getByRole("region", { name: "Preview" }).locator("strong", { hasText: "very loud" }).waitFor();
    check((await field.inputValue()) === "It is **very loud**.", "the text is gone");
    check((await page.locator("article", { hasText: "very loud" }).count()) === 0, "the comment is stored");
  },
};

/** Runs each story with JavaScript and without it. */
export async function tellStories(instance) {
  const browser = await launch();
  try {
    for (const javaScriptEnabled of [true, false]) {
      for (const [name, story] of Object.entries(STORIES)) {
        await test(`${name}, ${javaScriptEnabled ? "with" : "without"} JavaScript`, async () => {
          const windows = [];
          const open = async (username) => {
            const page = await visit(browser, username, { javaScriptEnabled });
            windows.push(page);
            return page;
          };
          try {
            await story(open, instance);
          } finally {
            for (const page of windows) await page.context().close();
          }
        });
      }
    }
  } finally {
    await browser.close();
  }
}

/** Returns the public part of a new SSH key. */
function sshKey(comment) {
  const { x } = generateKeyPairSync("ed25519").publicKey.export({ format: "jwk" });
  const parts = [Buffer.from("ssh-ed25519"), Buffer.from(x, "base64url")];
  const blob = Buffer.concat(parts.flatMap((part) => [Buffer.from([0, 0, 0, part.length]), part]));
  return `ssh-ed25519 ${blob.toString("base64")} ${comment}`;
}

async function expectText(page, text) {
  await page.getByText(text).first().waitFor();
}

async function expectHeading(page, name) {
  await page.getByRole("heading", { name }).first().waitFor();
}

function focusedText(page) {
  return page.evaluate(() => document.activeElement.textContent.trim());
}
