"""What runs in the environment of NNCF and OpenVINO, one process for each step; it needs nothing else of nncf-tools."""
