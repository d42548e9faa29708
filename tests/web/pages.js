// Opens every page of the route table as each kind of visitor: the HTML is valid, axe finds nothing serious in light and
// dark, nothing scrolls sideways at 320 px, no script or style is blocked, and the page weighs little.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { HtmlValidate } from "html-validate";

import { launch, visit } from "./browser.js";
import { check, test } from "./tests.js";

/** The developer comes first: the administrator opens only what the developer cannot. */
const VISITORS = ["dan", undefined, "root"];

/** The limits of a first visit, in bytes. */
const MAX_DOCUMENT = 50 * 1024;
const MAX_FIRST_VISIT = 100 * 1024;
const MAX_STYLES = 20 * 1024;
const MAX_SCRIPTS = 30 * 1024;
/** The page, the stylesheet, the script and the icon; images in the content are not counted. */
const MAX_REQUESTS = 4;

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const validator = new HtmlValidate({
  extends: ["html-validate:recommended"],
  rules: {
    // Matters of taste.
    "attr-quotes": "off",
    "no-trailing-whitespace": "off",
    "doctype-style": "off",
    "long-title": "off",
    "void-style": "off",
    "prefer-native-element": "off",
    "require-sri": "off",
    // Form fields repeat for each row of a list, and buttons share a name with different values.
    "form-dup-name": "off",
    // Not every browser knows them, and the addresses are not phone numbers.
    "tel-non-breaking": "off",
  },
});

/** Returns the routes of pages that are read, from the access table that the tests of the policy print. */
function routes() {
  const snapshots = join(process.env.GABLE_SOURCE, "crates/server/tests/it/policy/snapshots");
  const table = readFileSync(join(snapshots, "it__policy__access_to_pages__pages_of_a_public_project.snap"), "utf8");
  return table.split("\n").map((line) => /^GET +(\S+)/.exec(line)?.[1]).filter(Boolean);
}

/** The pages by their route: a path, several, or `null` if the route does not lead to a page. */
function addresses(instance) {
  const { issue, note, label, milestone, head, hook, delivery, systemHook, systemDelivery, pipeline, failed, compiled } = instance;
  return {
    "/": null,
    "/assets/{location}": null,
    "/users/sign_in": "/users/sign_in",
    "/dashboard": "/dashboard",
    "/-/user_settings": null,
    "/-/profile": null,
    "/-/profile/{location}": null,
    "/profile": null,
    "/profile/{location}": null,
    "/-/user_settings/profile": "/-/user_settings/profile",
    "/-/user_settings/password": "/-/user_settings/password",
    "/-/user_settings/emails": "/-/user_settings/emails",
    "/-/user_settings/ssh_keys": "/-/user_settings/ssh_keys",
    "/-/user_settings/personal_access_tokens": "/-/user_settings/personal_access_tokens",
    "/-/user_settings/active_sessions": "/-/user_settings/active_sessions",
    "/admin": "/admin",
    "/admin/users": "/admin/users",
    "/admin/users/new": "/admin/users/new",
    "/admin/projects": "/admin/projects",
    "/admin/groups": "/admin/groups",
    "/admin/background_tasks": "/admin/background_tasks",
    "/admin/hooks": "/admin/hooks",
    "/admin/hooks/{id}": `/admin/hooks/${systemHook.id}`,
    "/admin/hooks/{id}/hook_logs/{delivery}": `/admin/hooks/${systemHook.id}/hook_logs/${systemDelivery.id}`,
    "/admin/runners": "/admin/runners",
    "/admin/users/{username}": "/admin/users/ann",
    "/search": [
      "/search",
      "/search?search=rocket",
      "/search?scope=issues&search=the",
      "/search?scope=users&search=a",
      "/search?search=engine&project=acme/rocket",
      "/search?scope=commits&search=rocket&project=acme/rocket",
      "/search?search=nothing+here",
    ],
    "/help": "/help",
    "/help/markdown": "/help/markdown",
    "/help/keyboard": "/help/keyboard",
    "/help/api": "/help/api",
    "/help/api/{tag}": ["/help/api/projects", "/help/api/issues", "/help/api/runners"],
    "/dashboard/issues": ["/dashboard/issues", "/dashboard/issues?scope=created"],
    "/explore": ["/explore", "/explore?search=nothing+here"],
    "/groups/{group}": "/groups/acme",
    "/groups/{group}/-/issues": ["/groups/acme/-/issues", "/groups/acme/-/issues?label_name=bug"],
    "/{namespace}": ["/ann", "/acme", "/missing"],
    "/{project}": ["/acme/rocket", "/ann/empty", "/ann/secret"],
    "/{project}/-/activity": "/acme/rocket/-/activity",
    "/{project}/-/tree": null,
    "/{project}/-/tree/{location}": "/acme/rocket/-/tree/main/src",
    "/{project}/-/blob/{location}": ["src/engine.rs", "docs/manual.md", "logo.png"].map(
      (path) => `/acme/rocket/-/blob/main/${path}`,
    ),
    "/{project}/-/raw/{location}": null,
    "/{project}/-/blame/{location}": "/acme/rocket/-/blame/main/src/engine.rs",
    "/{project}/-/new/{location}": "/acme/rocket/-/new/newtons/src",
    "/{project}/-/edit/{location}": "/acme/rocket/-/edit/newtons/src/engine.rs",
    "/{project}/-/graphs/{location}": "/acme/rocket/-/graphs/main",
    "/{project}/-/find_file/{location}": "/acme/rocket/-/find_file/main?search=src",
    "/{project}/-/archive/{location}": null,
    "/{project}/-/releases": "/acme/rocket/-/releases",
    "/{project}/-/tags/{location}/release/edit": "/acme/rocket/-/tags/v1.0/release/edit",
    "/{project}/-/commits": null,
    "/{project}/-/commits/{location}": "/acme/rocket/-/commits/main",
    "/{project}/-/commit/{location}": `/acme/rocket/-/commit/${head}`,
    "/{project}/-/branches": "/acme/rocket/-/branches",
    "/{project}/-/tags": "/acme/rocket/-/tags",
    "/{project}/-/branches/new": "/acme/rocket/-/branches/new",
    "/{project}/-/tags/new": "/acme/rocket/-/tags/new",
    "/projects/new": "/projects/new",
    "/groups/new": "/groups/new",
    "/groups/{group}/-/edit": "/groups/acme/-/edit",
    "/groups/{group}/-/group_members": ["/groups/acme/-/group_members", "/groups/acme/-/group_members?find=e"],
    "/{project}/-/forks": "/acme/rocket/-/forks",
    "/{project}/-/forks/new": "/acme/rocket/-/forks/new",
    "/{project}/-/edit": null,
    "/{project}/-/settings/general": ["/acme/rocket/-/settings/general", "/ann/empty/-/settings/general"],
    "/{project}/-/settings/repository": "/acme/rocket/-/settings/repository",
    "/{project}/-/settings/ci_cd": "/acme/rocket/-/settings/ci_cd",
    "/{project}/-/project_members": ["/acme/rocket/-/project_members", "/ann/empty/-/project_members?find=e"],
    "/{project}/-/hooks": ["/acme/rocket/-/hooks", "/ann/empty/-/hooks"],
    "/{project}/-/hooks/{hook}/edit": `/acme/rocket/-/hooks/${hook.id}/edit`,
    "/{project}/-/hooks/{hook}/hook_logs/{delivery}": `/acme/rocket/-/hooks/${hook.id}/hook_logs/${delivery.id}`,
    "/{project}/-/compare": "/acme/rocket/-/compare",
    "/{project}/-/compare/{location}": "/acme/rocket/-/compare/main...newtons",
    "/{project}/-/issues": [
      "/acme/rocket/-/issues",
      "/acme/rocket/-/issues?state=closed&search=x",
      "/acme/rocket/-/issues?label_name[]=bug&assignee_username=dan",
    ],
    "/{project}/-/issues/new": "/acme/rocket/-/issues/new",
    "/{project}/-/issues/{iid}": `/acme/rocket/-/issues/${issue.iid}`,
    "/{project}/-/pipelines": ["/acme/rocket/-/pipelines", "/acme/rocket/-/pipelines?status=canceled"],
    "/{project}/-/pipelines/new": "/acme/rocket/-/pipelines/new",
    "/{project}/-/pipelines/{id}": `/acme/rocket/-/pipelines/${pipeline.id}`,
    "/{project}/-/jobs/{id}": [failed, compiled].map(({ id }) => `/acme/rocket/-/jobs/${id}`),
    "/{project}/-/jobs/{id}/log": null,
    "/{project}/-/jobs/{id}/raw": null,
    "/{project}/-/jobs/{id}/artifacts/download": null,
    "/{project}/-/jobs/{id}/artifacts/browse": `/acme/rocket/-/jobs/${compiled.id}/artifacts/browse`,
    "/{project}/-/jobs/{id}/artifacts/browse/{location}": `/acme/rocket/-/jobs/${compiled.id}/artifacts/browse/out`,
    "/{project}/-/jobs/{id}/artifacts/file/{location}": null,
    "/{project}/-/ci/lint": ["/acme/rocket/-/ci/lint", "/acme/rocket/-/ci/lint?ref=missing"],
    "/{project}/-/issues/{iid}/edit": `/acme/rocket/-/issues/${issue.iid}/edit`,
    "/{project}/-/issues/{iid}/notes/{note}/edit": `/acme/rocket/-/issues/${issue.iid}/notes/${note.id}/edit`,
    "/{project}/-/labels": ["/acme/rocket/-/labels", "/ann/empty/-/labels"],
    "/{project}/-/labels/new": "/acme/rocket/-/labels/new",
    "/{project}/-/labels/{label}/edit": `/acme/rocket/-/labels/${label.id}/edit`,
    "/{project}/-/milestones": ["/acme/rocket/-/milestones", "/acme/rocket/-/milestones?state=closed"],
    "/{project}/-/milestones/new": "/acme/rocket/-/milestones/new",
    "/{project}/-/milestones/{iid}": `/acme/rocket/-/milestones/${milestone.iid}`,
    "/{project}/-/milestones/{iid}/edit": `/acme/rocket/-/milestones/${milestone.iid}/edit`,
    "/{project}/-/boards": ["/acme/rocket/-/boards", "/ann/empty/-/boards"],
  };
}

/** Tests all pages, and prints what they weigh. */
export async function testPages(instance) {
  const known = addresses(instance);
  const missing = routes().filter((route) => !(route in known));
  await test("every route has a page to test", () => {
    check(missing.length === 0, `add these routes to pages.js: ${missing.join(" ")}`);
  });
  const paths = Object.values(known).flat().filter(Boolean);
  const browser = await launch();
  const rows = new Map();
  try {
    const examined = new Set();
    for (const username of VISITORS) {
      const page = await visit(browser, username);
      const problems = watch(page);
      for (const path of paths.filter((path) => username !== "root" || !examined.has(path))) {
        await test(`${path} as ${username ?? "anonymous"}`, async () => {
          problems.length = 0;
          const response = await page.goto(path);
          if (response.request().redirectedFrom()) return;
          if (username === "dan" && response.ok()) examined.add(path);
          validate(await response.text());
          await examine(page, username === "dan");
          check(problems.length === 0, problems.join("\n"));
        });
      }
      await page.context().close();
    }
    for (const path of paths) {
      await test(`the weight of ${path}`, async () => {
        const weight = await weigh(browser, path);
        if (weight) rows.set(path, weight);
      });
    }
  } finally {
    await browser.close();
  }
  print(rows);
}

/** Collects errors of scripts and violations of the content security policy. */
function watch(page) {
  const problems = [];
  page.on("pageerror", (error) => problems.push(`script error: ${error.message}`));
  page.on("console", (message) => {
    // Chromium reports the status of error pages too.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) problems.push(message.text());
  });
  return problems;
}

/** Fails if the HTML has errors. */
function validate(html) {
  const report = validator.validateStringSync(html);
  const messages = report.results.flatMap(({ messages }) => messages);
  const texts = messages.map(({ line, column, message, ruleId }) => `${line}:${column} ${message} (${ruleId})`);
  check(report.valid, `invalid HTML\n${texts.join("\n")}`);
}

/** Fails if axe has serious findings, or if the page is wider than a narrow screen. */
async function examine(page, inDark) {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.emulateMedia({ colorScheme: "light" });
  await runAxe(page, "light", {});
  if (inDark) {
    // Only the colours are different.
    await page.emulateMedia({ colorScheme: "dark" });
    await runAxe(page, "dark", { runOnly: ["color-contrast", "link-in-text-block"] });
  }
  await page.setViewportSize({ width: 320, height: 700 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  check(width <= 320, `the page is ${width} px wide on a screen of 320 px`);
}

async function runAxe(page, scheme, options) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((options) => globalThis.axe.run(document, options), options);
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const texts = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join("\n  ")}`);
  check(serious.length === 0, `axe in ${scheme}\n${texts.join("\n")}`);
}

/** Returns what a first visit loads, compressed as the server sends it. */
async function weigh(browser, path) {
  const page = await visit(browser);
  const loads = [];
  page.on("response", (response) => loads.push(response));
  try {
    const response = await page.goto(path, { waitUntil: "load" });
    if (response.request().redirectedFrom()) return undefined;
    const weight = { document: 0, style: 0, script: 0, image: 0, requests: 0 };
    for (const load of loads) {
      const kind = load.request().resourceType();
      const { responseBodySize } = await load.request().sizes();
      const size = responseBodySize > 0 ? responseBodySize : gzipSync(await load.body()).length;
      const name = { document: "document", stylesheet: "style", script: "script" }[kind] ?? "image";
      weight[name] += size;
      if (kind !== "image" || load.url().includes("/assets/")) weight.requests += 1;
    }
    const total = weight.document + weight.style + weight.script + weight.image;
    check(weight.document <= MAX_DOCUMENT, `the document has ${weight.document} bytes`);
    check(weight.style <= MAX_STYLES, `the styles have ${weight.style} bytes`);
    check(weight.script <= MAX_SCRIPTS, `the scripts have ${weight.script} bytes`);
    check(total <= MAX_FIRST_VISIT, `the first visit loads ${total} bytes`);
    check(weight.requests <= MAX_REQUESTS, `the first visit makes ${weight.requests} requests`);
    return { ...weight, total };
  } finally {
    await page.context().close();
  }
}

function print(rows) {
  const number = (value) => String(value).padStart(9);
  const columns = ["document", "style", "script", "image", "total", "requests"];
  console.log(`${"first visit, bytes as sent".padEnd(60)}${columns.map(number).join("")}`);
  for (const [path, weight] of rows) {
    console.log(`${path.slice(0, 58).padEnd(60)}${columns.map((column) => number(weight[column])).join("")}`);
  }
}
