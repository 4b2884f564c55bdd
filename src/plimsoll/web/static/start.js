// Begins again where a file of the page does not arrive. A browser drops its requests when the network of its machine
// changes, which a new pod is enough for, and a missing module would leave the page empty.

const STARTS = 'plimsoll.starts';
const MOST_STARTS = 8;

addEventListener(
  'error',
  (event) => {
    const page = document.documentElement;
    if (event.target === globalThis || page.dataset.start) return; // not a file, or the page has begun
    const starts = Number(sessionStorage.getItem(STARTS)) + 1;
    if (starts > MOST_STARTS) return;
    sessionStorage.setItem(STARTS, String(starts));
    page.dataset.start = 'again';
    setTimeout(() => location.reload(), 250 * starts);
  },
  true, // such an event does not bubble
);
