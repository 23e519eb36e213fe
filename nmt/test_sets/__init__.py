"""Published test sets by their names, as nmt-eval reads them."""
