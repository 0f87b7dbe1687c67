/** Preloaded into a process whose clock is to be wrong by WARREN_TEST_CLOCK_SHIFT_MS milliseconds. */
const shiftMs = Number(process.env.WARREN_TEST_CLOCK_SHIFT_MS);
const Real = Date;

globalThis.Date = class extends Real {
  constructor(...given) {
    // oxlint-disable-next-line typescript/no-unsafe-argument -- whatever Date takes
    super(...(given.length === 0 ? [Real.now() + shiftMs] : given));
  }

  static now() {
    return Real.now() + shiftMs;
  }
};
