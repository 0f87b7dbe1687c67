/** `deploy/Dockerfile` as a real parser reads it: stages, and their instructions in order. */
import { DockerfileParser } from 'dockerfile-ast';
import type { Copy, From, Instruction, PropertyInstruction } from 'dockerfile-ast';
import dockerignore from '@balena/dockerignore';
import { readSource } from './source-files.ts';

/** Where it is. */
export const DOCKERFILE = 'deploy/Dockerfile';

/** One instruction. */
export interface Step {
  /** In upper case, such as `RUN`. */
  readonly keyword: string;
  /** What follows, without flags. */
  readonly words: readonly string[];
  /** Of ENV and LABEL. */
  readonly properties: Readonly<Record<string, string>>;
  /** The words of the exec form; `undefined` where it is not one. */
  readonly exec: readonly string[] | undefined;
  /** `--from` of a COPY. */
  readonly from: string | undefined;
}

/** From one FROM to the next. */
export interface Stage {
  readonly name: string;
  readonly image: string;
  readonly steps: readonly Step[];
}

/** Reads it. */
export function readDockerfile(text = readSource(DOCKERFILE)): readonly Stage[] {
  const stages: { name: string; image: string; steps: Step[] }[] = [];
  for (const instruction of DockerfileParser.parse(text).getInstructions()) {
    if (instruction.getKeyword() === 'FROM') {
      const from = instruction as From;
      stages.push({ name: from.getBuildStage() ?? '', image: from.getImage() ?? '', steps: [] });
    } else stages.at(-1)?.steps.push(stepOf(instruction));
  }
  return stages;
}

/** The steps of one stage with this keyword. */
export function stepsOf(stage: string, keyword: string): readonly Step[] {
  const found = readDockerfile().find(({ name }) => name === stage);
  if (found === undefined) throw new Error(`${DOCKERFILE} has no stage ${stage}`);
  return found.steps.filter((step) => step.keyword === keyword);
}

function stepOf(instruction: Instruction): Step {
  const keyword = instruction.getKeyword();
  const from = keyword === 'COPY' ? (instruction as Copy).getFromFlag()?.getValue() : undefined;
  const words = instruction.getArguments().map((argument) => argument.getValue());
  const isPropertied = keyword === 'ENV' || keyword === 'LABEL';
  const properties = isPropertied ? (instruction as PropertyInstruction).getProperties() : [];
  const raw = instruction.getArgumentsContent() ?? '';
  const list = /\[[^\]]*\]$/.exec(raw)?.[0];
  return {
    keyword,
    words: words.filter((word) => !word.startsWith('--')),
    properties: Object.fromEntries(properties.map((each) => [each.getName(), each.getValue() ?? ''])),
    exec: list === undefined ? undefined : (JSON.parse(list) as string[]),
    from: from ?? undefined,
  };
}

/** What `.dockerignore` keeps from the engine. Its types are those of a module, and it is none. */
export function readDockerignore(): { ignores(path: string): boolean } {
  const make = dockerignore as unknown as typeof dockerignore.default;
  return make().add(readSource('.dockerignore'));
}
