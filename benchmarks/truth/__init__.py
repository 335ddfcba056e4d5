"""Does nncf-tools name the right size, moment, operation and process of a peak? Each workload knows the truth."""
