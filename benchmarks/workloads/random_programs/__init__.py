"""Programs that are made up from a number, and note what each of their processes holds, and when."""
