/** True where somebody has the time: `WARREN_TEST_LONG=1` makes tests take the real time of what they stand for. */
export const isLongRun = process.env['WARREN_TEST_LONG'] !== undefined;
