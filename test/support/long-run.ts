/** True in `make test-long`: what is scaled or counted down otherwise takes its real time and number. */
export const IS_LONG_RUN = process.env['WARREN_TEST_LONG'] !== undefined;
