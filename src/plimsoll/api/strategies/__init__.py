"""What is specific to each kind when it is written. One module per family of kinds, all pure; `table` lists them."""
