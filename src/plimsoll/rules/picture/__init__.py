"""Pictures of cgroups: an explained or observed tree → vessels with lines and fills → layout → SVG or HTML."""
