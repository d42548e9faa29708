// Tests the web interface of a running server in Chromium: `node main.js [pages] [stories] [pictures FOLDER]`.

import { createInstance } from "./instance.js";
import { testPages } from "./pages.js";
import { takePictures } from "./pictures.js";
import { tellStories } from "./stories.js";
import { finish, test } from "./tests.js";

const parts = process.argv.slice(2);
let instance;
await test("an instance is created", async () => {
  instance = await createInstance();
});
if (instance) {
  if (parts.includes("pictures")) await takePictures(instance, parts[parts.indexOf("pictures") + 1]);
  if (parts.includes("pages")) await testPages(instance);
  if (parts.includes("stories")) await tellStories(instance);
}
finish();
