"""On-core memories: banked partition memory, SBUF and PSUM."""
