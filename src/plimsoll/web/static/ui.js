// The few functions of the vendored library that all modules use.
export const { html, render, Component, useState, useEffect, useLayoutEffect, useMemo, useRef } = globalThis.htmPreact;
