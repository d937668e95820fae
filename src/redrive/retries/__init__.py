"""Records that wait in retry topics: how many, until when, and hurrying or discarding some of them."""
