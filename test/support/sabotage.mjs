/** `node --import` this to run a program with faults in it that its sources do not have; `CHAOS_SABOTAGE` names them as JSON. */
/* oxlint-disable typescript/no-unsafe-call, typescript/no-unsafe-member-access, typescript/no-unsafe-argument, typescript/no-unsafe-return, typescript/no-unsafe-assignment -- plain JavaScript without types: node loads it before anything else */
import { register } from 'node:module';

register('./sabotage-hooks.mjs', import.meta.url, { data: JSON.parse(process.env.CHAOS_SABOTAGE) });
