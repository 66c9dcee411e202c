"""The consortium's side: exchange, coordinator, recipes, synthesis, evaluation, releases."""
