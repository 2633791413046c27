"""The base class and the logger of search algorithms written for WMLA."""
