/** Exports no task type. */
export const notATask = { name: 'report.csv', run: (): number => 1 };
