"""Server-side printing: the Table that kubectl shows for each kind."""
