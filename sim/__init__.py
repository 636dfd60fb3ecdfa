"""Everything that runs tools: netlists, simulators, workloads, the command line. Imports models and rtl."""
