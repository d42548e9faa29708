// Starts Chromium, and signs visitors in.

import { chromium } from "playwright-core";

import { password, rootPassword, url } from "./gable.js";

/** Starts Chromium. */
export function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** Opens a window for a visitor, signed in unless the username is missing. */
export async function visit(browser, username, options = {}) {
  const context = await browser.newContext({ baseURL: url, ...options });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  if (username) await signIn(page, username);
  return page;
}

/** Fills in the sign-in form. */
export async function signIn(page, username, typed = username === "root" ? rootPassword : password) {
  await page.goto("/users/sign_in");
  await page.getByLabel("Username or email").fill(username);
  await page.getByLabel("Password").fill(typed);
  await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
}
