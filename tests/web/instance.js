// The instance that the pages and the pictures show: a group with a project that has code, issues, pipelines and hooks.

import { api, createUser, eventually, push } from "./gable.js";

const README = `# Rocket

A small rocket with a **parachute**. See [the manual](docs/manual.md).

| Stage | Fuel | Thrust |
|-------|------|-------:|
| first | kerosene | 840 kN |
| second | hydrogen | 110 kN |

- [x] engine
- [ ] landing legs

\`\`\`rust
fn main() {
    println!("lift off");
}
\`\`\`
`;

const SOURCE = `//! Controls the engine.

/// The state of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Off,
    Burning { thrust: f64 },
}

/// Returns the fuel that an engine needs per second.
pub fn consumption(state: State) -> f64 {
    match state {
        State::Off => 0.0,
        State::Burning { thrust } => thrust * 0.29,
    }
}
`;

const CI = `stages: [build, test, release]

compile:
  stage: build
  script:
    - echo "compiling rocket"
    - mkdir out && echo "binary" > out/rocket
  artifacts:
    paths: [out]

unit tests:
  stage: test
  script:
    - printf '\\033[32mok\\033[0m   fuel_is_measured\\n'
    - printf '\\033[31;1mFAILED\\033[0m parachute_opens\\n'
    - exit 1

lint:
  stage: test
  script:
    - echo "no findings"

publish:
  stage: release
  script:
    - echo "published"
  when: manual
`;

/** A red square. */
export const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC",
  "base64",
);

/** Creates the instance and returns what the tests refer to. */
export async function createInstance() {
  await api("POST", "/hooks", { url: "http://127.0.0.1:9/system" });
  const [systemHook] = await api("GET", "/hooks");
  const ann = await createUser("ann", "Ann Example");
  const dan = await createUser("dan", "Dan Developer");
  const eve = await createUser("eve", "Eve Visitor");
  const group = await api("POST", "/groups", { name: "Acme", path: "acme", visibility_level: 20 }, ann);
  await api("POST", `/groups/${group.id}/members`, { user_id: dan.id, access_level: 30 }, ann);
  const description = "A small rocket with a parachute";
  const fields = { name: "rocket", namespace_id: group.id, description, visibility_level: 20 };
  const rocket = await api("POST", "/projects", fields, ann);
  const secret = await api("POST", "/projects", { name: "secret", visibility_level: 0 }, ann);
  const empty = await api("POST", "/projects", { name: "empty", visibility_level: 20 }, ann);
  for (let number = 1; number <= 25; number += 1) {
    const name = `library-${number}`;
    await api("POST", "/projects", { name, visibility_level: 20, description: `Part number ${number}` }, dan);
  }
  const day = (number) => `2026-10-${String(number).padStart(2, "0")}T12:00:00Z`;
  const head = push("acme/rocket", ann, [
    { message: "Start the project", author: ann, date: day(1), files: { "README.md": README, "LICENSE": "MIT\n" } },
    { message: "Add the engine", author: ann, date: day(2), files: { "src/engine.rs": SOURCE, "logo.png": PNG } },
    {
      message: "Write a manual\n\nIt explains the launch.",
      author: dan,
      date: day(3),
      files: { "docs/manual.md": "# Manual\n\n1. Fill the tank.\n2. Press the button.\n" },
      tag: "v1.0",
    },
    { message: "Build with every push", author: dan, date: day(4), files: { ".gitlab-ci.yml": CI } },
    {
      message: "Measure the thrust in newtons\n\nCloses #2",
      author: dan,
      date: day(5),
      branch: "newtons",
      files: { "src/engine.rs": SOURCE.replace("thrust * 0.29", "thrust.max(0.0) * 0.000_29"), "LICENSE": null },
    },
  ]);
  push("ann/secret", ann, [{ message: "Start", author: ann, files: { "README.md": "# Secret\n" } }]);

  const path = `/projects/${rocket.id}`;
  let label;
  for (const [name, color] of [["bug", "#d9534f"], ["idea", "#5cb85c"], ["to do", "#428bca"]]) {
    label = await api("POST", `${path}/labels`, { name, color }, ann);
  }
  const [board] = await api("GET", `${path}/boards`, undefined, ann);
  await api("POST", `${path}/boards/${board.id}/lists`, { label_id: label.id }, ann);
  const milestone = await api("POST", `${path}/milestones`, { title: "First flight", due_date: "2027-03-01" }, ann);
  const issue = await api(
    "POST",
    `${path}/issues`,
    {
      title: "The parachute opens too early",
      description: "At 300 m instead of **1,000 m**.\n\n```\nt=31 parachute open\n```\n\nSee #2 and @dan.",
      labels: "bug,to do",
      assignee_id: dan.id,
      milestone_id: milestone.id,
      due_date: "2027-01-15",
    },
    ann,
  );
  await api("POST", `${path}/issues`, { title: "Measure the thrust in newtons", labels: "idea" }, eve);
  await api("POST", `${path}/issues`, { title: "A hidden weakness", confidential: true }, ann);
  const note = await api("POST", `${path}/issues/${issue.id}/notes`, { body: "I can reproduce it." }, dan);
  await api("POST", `${path}/issues/${issue.id}/notes`, { body: "The sensor is **frozen**." }, eve);
  await api("POST", `${path}/repository/tags/v1.0/release`, { description: "The *first* release." }, ann);
  const hook = await api("POST", `${path}/hooks`, { url: "http://127.0.0.1:9/hook", push_events: true }, ann);
  await api("POST", `${path}/hooks/${hook.id}/test/push_events`, {}, ann);
  const [delivery] = await api("GET", `${path}/hooks/${hook.id}/deliveries`, undefined, ann);
  const [systemDelivery] = await api("GET", `/hooks/${systemHook.id}/deliveries`);
  await api("POST", `${path}/members`, { user_id: eve.id, access_level: 20, expires_at: "2030-01-01" }, ann);
  await api("POST", `${path}/variables`, { key: "LAUNCH_CODE", value: "0000" }, ann);
  await api("POST", `${path}/triggers`, {}, ann);
  const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl server";
  await api("POST", `${path}/deploy_keys`, { title: "build server", key }, ann);
  await api("PUT", `${path}/repository/branches/main/protect`, { developers_can_push: true }, ann);
  const pipeline = await eventually("the pipeline of main", async () => {
    const pipelines = await api("GET", `${path}/pipelines`, undefined, ann);
    return pipelines.find(({ ref, status }) => ref === "main" && ["failed", "success"].includes(status));
  });
  const jobs = await api("GET", `${path}/builds`, undefined, ann);
  const failed = jobs.find(({ name }) => name === "unit tests");
  const compiled = jobs.find(({ name }) => name === "compile");
  const users = { ann, dan, eve };
  const tracker = { issue, note, label, milestone };
  const ci = { pipeline, failed, compiled };
  return { users, group, rocket, secret, empty, head, hook, delivery, systemHook, systemDelivery, ...tracker, ...ci };
}
