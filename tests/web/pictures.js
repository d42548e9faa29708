// Takes pictures of the most important pages, for people to look at: wide in light and dark, and narrow.

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { launch, visit } from "./browser.js";

const VIEWS = [
  { name: "light", viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  { name: "dark", viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
  { name: "narrow", viewport: { width: 320, height: 640 }, colorScheme: "light" },
];

function subjects({ head, hook, issue, pipeline, failed }) {
  return {
    "sign-in": [undefined, "/users/sign_in"],
    dashboard: ["dan", "/dashboard"],
    explore: [undefined, "/explore"],
    user: ["dan", "/ann"],
    group: ["dan", "/groups/acme"],
    project: ["dan", "/acme/rocket"],
    file: ["dan", "/acme/rocket/-/blob/main/src/engine.rs"],
    history: ["dan", "/acme/rocket/-/commits/main"],
    commit: ["dan", `/acme/rocket/-/commit/${head}`],
    activity: ["dan", "/acme/rocket/-/activity"],
    branches: ["dan", "/acme/rocket/-/branches"],
    compare: ["dan", "/acme/rocket/-/compare/main...newtons"],
    issues: ["dan", "/acme/rocket/-/issues"],
    issue: ["dan", `/acme/rocket/-/issues/${issue.iid}`],
    board: ["dan", "/acme/rocket/-/boards"],
    "new-issue": ["dan", "/acme/rocket/-/issues/new"],
    pipelines: ["dan", "/acme/rocket/-/pipelines"],
    pipeline: ["dan", `/acme/rocket/-/pipelines/${pipeline.id}`],
    job: ["dan", `/acme/rocket/-/jobs/${failed.id}`],
    lint: ["dan", "/acme/rocket/-/ci/lint"],
    "new-project": ["dan", "/projects/new"],
    "project-settings": ["root", "/acme/rocket/-/settings/general"],
    members: ["root", "/acme/rocket/-/project_members"],
    "repository-settings": ["root", "/acme/rocket/-/settings/repository"],
    "ci-settings": ["root", "/acme/rocket/-/settings/ci_cd"],
    webhook: ["root", `/acme/rocket/-/hooks/${hook.id}/edit`],
    missing: [undefined, "/acme/missing"],
  };
}

/** Writes a picture of each page and view into a folder. */
export async function takePictures(instance, folder) {
  mkdirSync(folder, { recursive: true });
  const browser = await launch();
  try {
    for (const { name: view, ...options } of VIEWS) {
      const visitors = new Map();
      for (const [name, [username, path]] of Object.entries(subjects(instance))) {
        if (!visitors.has(username)) visitors.set(username, await visit(browser, username, options));
        const page = visitors.get(username);
        // The first visit fills the caches: last commits and highlighted files.
        await page.goto(path);
        await page.goto(path);
        await page.screenshot({ path: join(folder, `${name}-${view}.png`), fullPage: view === "narrow" });
      }
      for (const page of visitors.values()) await page.context().close();
    }
  } finally {
    await browser.close();
  }
  console.log(`pictures are in ${folder}`);
}
