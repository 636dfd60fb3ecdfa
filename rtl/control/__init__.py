"""Core control: instruction fetch, sequencers, semaphores, errors, registers."""
