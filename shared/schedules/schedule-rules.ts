/** What a schedule may say of runs that would overlap, and of instants that were missed. */

/** What happens at an instant while the run before has not ended. */
export const OVERLAP_RULES = ['skip', 'queue', 'allow', 'cancelRunning'] as const;
/** What happens with instants that passed while no producer ran. */
export const CATCH_UP_RULES = ['none', 'last', 'all'] as const;
