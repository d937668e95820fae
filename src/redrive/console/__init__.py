"""Dead letters over HTTP: who may ask, what is asked, and what is answered. Needs the extra `console`."""
