"""tf.Example messages: parsing, the features to parse, and writing."""
