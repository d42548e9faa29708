// Runs tests and counts them.

const counts = { passed: 0, failed: 0 };
const started = Date.now();

/** A condition that does not hold; its message says enough. */
class CheckError extends Error {}

/** Runs a test; a failure is printed and counted. */
export async function test(name, run) {
  try {
    await run();
    counts.passed += 1;
  } catch (error) {
    counts.failed += 1;
    const text = error instanceof CheckError ? error.message : error.stack;
    console.log(`FAILED ${name}\n${text}\n`);
  }
}

/** Fails unless the condition holds. */
export function check(condition, message) {
  if (!condition) throw new CheckError(message);
}

/** Prints the totals, and sets the exit status. */
export function finish() {
  const seconds = ((Date.now() - started) / 1000).toFixed(0);
  console.log(`${counts.passed} passed, ${counts.failed} failed in ${seconds} s`);
  if (counts.failed > 0) process.exitCode = 1;
}
