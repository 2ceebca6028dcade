// One question at a time for a place on the page: an answer that comes after a newer question is dropped.
// @ts-check

export function latestAnswer() {
  let asked = 0;
  // `done(answer, seconds it took)`; answer is null when there is no such thing, undefined when it failed.
  return async function (address, done) {
    asked += 1;
    const mine = asked;
    const began = performance.now();
    let found;
    try {
      const answer = await fetch(address, { cache: "no-store", credentials: "same-origin" });
      if (answer.ok) { found = await answer.json(); }
      else if (answer.status === 404) { found = null; }
    } catch {
      found = undefined; // the head of the page says that there is no answer; the next tick tries again
    }
    if (mine === asked) { done(found, (performance.now() - began) / 1000); }
  };
}
