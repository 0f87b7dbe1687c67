import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { ClaimBook } from '../../services/worker/claim-book.ts';

/** A settle statement on its way: which claims its tasks belong to, and which claims it deletes. */
interface UnderWay {
  readonly claimIds: readonly string[];
  readonly finished: readonly string[];
}

/** What Postgres would hold: claims with the tasks of each that run. */
class Model {
  readonly open = new Map<string, number>();
  readonly rows = new Set<string>();
  readonly underWay: UnderWay[] = [];
  /** Tasks of each claim whose settle has not been sent. */
  readonly unsent: string[] = [];
  ids = 0;

  delete(claimIds: readonly string[]): void {
    for (const id of claimIds) {
      if ((this.open.get(id) ?? 0) > 0) throw new RangeError(`deleted ${id}, of which something runs`);
      this.rows.delete(id);
    }
  }
}

const step = fc.oneof(
  fc.record({ kind: fc.constant('claim' as const), tasks: fc.nat(4) }),
  fc.record({ kind: fc.constant('send' as const), most: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ kind: fc.constant('answer' as const), which: fc.nat(5) }),
  fc.record({ kind: fc.constant('forget' as const) }),
);

test('a claim is deleted once nothing of it runs, never before, and none stays for ever', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const book = new ClaimBook();
      const model = new Model();
      const send = (most: number): void => {
        const claimIds = model.unsent.splice(0, most);
        if (claimIds.length > 0) model.underWay.push({ claimIds, finished: book.finishedWith(claimIds) });
      };
      const answer = (which: number): void => {
        const [settle] = model.underWay.splice(which % Math.max(1, model.underWay.length), 1);
        if (settle === undefined) return;
        for (const id of settle.claimIds) model.open.set(id, (model.open.get(id) ?? 0) - 1);
        model.delete(settle.finished);
        book.settled(settle.claimIds, settle.finished);
      };
      for (const { kind, ...given } of steps) {
        if (kind === 'claim') {
          model.ids += 1;
          const id = `claim-${model.ids}`;
          const tasks = 'tasks' in given ? given.tasks : 0;
          book.begin(id);
          book.won(id, tasks);
          if (tasks === 0) continue;
          model.open.set(id, tasks);
          model.rows.add(id);
          for (let task = 0; task < tasks; task += 1) model.unsent.splice(task * 2, 0, id);
        } else if (kind === 'send') send('most' in given ? given.most : 1);
        else if (kind === 'answer') answer('which' in given ? given.which : 0);
        else model.delete(book.takeFinished());
        expect([...model.open].filter(([id, open]) => open > 0 && !book.has(id))).toEqual([]);
      }
      while (model.unsent.length > 0) send(3);
      while (model.underWay.length > 0) answer(0);
      model.delete(book.takeFinished());
      expect([...model.rows]).toEqual([]);
    }),
    { numRuns: 500 },
  );
});
