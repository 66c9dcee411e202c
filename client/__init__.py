"""The silo's side: guard (sole reader of records), mechanisms, courier."""
