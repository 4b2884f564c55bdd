// The session: a one-time code from the fragment becomes a token, which is kept for this tab only and sent as a header.

const KEY = 'plimsoll.session';

export function token() {
  return sessionStorage.getItem(KEY) ?? '';
}

export function forget() {
  sessionStorage.removeItem(KEY);
}

export function keep(text) {
  sessionStorage.setItem(KEY, text.trim());
}

export async function ask(path, options = {}) {
  const headers = { ...(options.headers ?? {}) };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  const answer = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer' });
  return answer;
}

export async function asked(path, options = {}) {
  return foundIn(await ask(path, options));
}

async function foundIn(answer) {
  const text = await answer.text();
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: text };
  }
  if (!answer.ok) throw new RequestError(answer.status, found.error ?? found.message ?? `HTTP ${answer.status}`, found);
  return found;
}

export class RequestError extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

const PAUSES_MS = [250, 500, 1000, 2000, 4000];

// Sends again while no answer comes: without the session the page could not begin.
async function reached(send) {
  for (const pause of PAUSES_MS) {
    try {
      return await send();
    } catch {
      await new Promise((done) => setTimeout(done, pause));
    }
  }
  return send();
}

export function posted(path, body) {
  return asked(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
}

// Takes the code out of the address before anything else happens, so that it is not in the history either.
export async function login() {
  const found = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (found) {
    history.replaceState(null, '', location.pathname + location.search);
    const options = { method: 'POST', headers: { 'Content-Type': 'application/json' }, credentials: 'omit' };
    const answer = await reached(() => fetch('api/session', { ...options, body: JSON.stringify({ code: found[1] }) }));
    const body = await answer.json();
    if (!answer.ok) throw new RequestError(answer.status, body.error ?? 'the code is not valid', body);
    keep(body.token);
  }
  if (token()) return foundIn(await reached(() => ask('api/whoami')));
  // An API server speaks TLS. Without it, `kubectl proxy` is in between and sends the user's credentials itself.
  if (location.protocol !== 'http:') return null;
  const answer = await ask('api/whoami');
  return answer.ok ? answer.json() : null;
}

export async function logout() {
  try {
    await ask('api/session', { method: 'DELETE' });
  } finally {
    forget();
  }
}
