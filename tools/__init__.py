"""What the gate needs beside the product: set-up and generated documents. The product never imports it."""
