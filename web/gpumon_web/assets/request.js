// Requests to the server. The feed makes its own (feed.js).
// @ts-check

// The JSON at an address. Throws an error with the `status` of a refusal.
export async function fetchJson(address, signal = undefined) {
  const response = await fetch(address, { signal, cache: "no-store", credentials: "same-origin" });
  if (!response.ok) { throw Object.assign(new Error(`${address}: ${response.status}`), { status: response.status }); }
  return response.json();
}

// A function that requests an address and calls `done(answer, seconds)` unless a newer request was made meanwhile. The answer
// is null if there is no such thing, and undefined if the request failed.
export function latestAnswer() {
  let count = 0;
  return async function (address, done) {
    count += 1;
    const mine = count;
    const began = performance.now();
    let answer;
    try {
      answer = await fetchJson(address);
    } catch (error) {
      answer = error.status === 404 ? null : undefined; // the head of the page reports a server that does not answer
    }
    if (mine === count) { done(answer, (performance.now() - began) / 1000); }
  };
}
