"""DMA: strided rows between memory channels, SBUF and PSUM."""
