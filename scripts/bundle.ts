/**
 * Puts each program that a service starts, with all that it imports, into one file in its place under `dist/`: node loads one file in
 * a third of the time that it needs for seven hundred (decision 0027). What stays outside is loaded by name.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { decode, encode } from '@jridgewell/sourcemap-codec';
import { build } from 'esbuild';
import type { Plugin } from 'esbuild';

const PROGRAMS = [
  'services/producer/main',
  'services/worker/main',
  'services/worker/lease-thread',
  'services/worker/thread-main',
  'services/dead-letter-handler/main',
];

/** What starts threads from files of its own, brings machine code, or is needed by few. */
const OUTSIDE = ['piscina', 'pg-native', 'nodemailer', '@aws-sdk/*'];

/** CommonJS packages ask for what modules do not have. */
const COMMONJS = `import { createRequire as createRequire__ } from 'node:module';
import { dirname as dirname__ } from 'node:path';
import { fileURLToPath as fileURLToPath__ } from 'node:url';
const require = createRequire__(import.meta.url), __filename = fileURLToPath__(import.meta.url), __dirname = dirname__(__filename);`;

/** What packages do at their start that no program here has a use for. A text that is no longer there ends the build. */
const LEFT_OUT = [
  // Makes a Response to learn whether it runs at Cloudflare, for which node loads all of fetch: 40 ms a process, and again in its thread.
  { file: /[\\/]pg[\\/]lib[\\/]stream\.js$/, from: 'if (isCloudflareRuntime())', to: 'if (false)' },
  // The languages of messages but for the one that zod itself uses, each a module.
  {
    file: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/,
    from: /^export \{ default as (?!en \}).*$/gm,
    to: '',
  },
] as const;

const leaveOut: Plugin = {
  name: 'leave-out',
  setup(plugin) {
    for (const { file, from, to } of LEFT_OUT) {
      plugin.onLoad({ filter: file }, async ({ path }) => {
        const text = await readFile(path, 'utf8');
        const contents = text.replace(from, to);
        if (contents === text) throw new Error(`${path} does not hold ${String(from)} any more`);
        return { contents };
      });
    }
  },
};

await build({
  entryPoints: PROGRAMS.map((program) => `${program}.ts`),
  outdir: 'dist',
  outbase: '.',
  allowOverwrite: true,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node20.19',
  external: OUTSIDE,
  plugins: [leaveOut],
  banner: { js: COMMONJS },
  minifyWhitespace: true,
  lineLimit: 160,
  sourcemap: 'linked',
  sourcesContent: false,
  logLevel: 'warning',
});

/** What of a source map is used here. */
interface SourceMap {
  readonly sources: readonly string[];
  readonly mappings: string;
}

/**
 * Leaves the lines of packages out of a source map. Node reads the whole map when it shows its first stack, in each process anew; ours is
 * a seventh of it.
 */
async function mapOwnLinesOnly(file: string): Promise<void> {
  const map = JSON.parse(await readFile(file, 'utf8')) as SourceMap;
  const isOwn = map.sources.map((source) => !source.includes('/node_modules/'));
  const lines = decode(map.mappings).map((line) => {
    let wasOwn = true;
    return line.flatMap((segment) => {
      const [column, source] = segment;
      const isOurs = source !== undefined && isOwn[source] === true;
      const isEdge = wasOwn && !isOurs;
      wasOwn = isOurs;
      if (isOurs) return [segment];
      return isEdge ? [[column] as [number]] : [];
    });
  });
  await writeFile(file, JSON.stringify({ ...map, mappings: encode(lines) }));
}

await Promise.all(PROGRAMS.map(async (program) => await mapOwnLinesOnly(`dist/${program}.js.map`)));
