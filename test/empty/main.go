// SPDX-License-Identifier: Apache-2.0

// Command empty does nothing. It is the base that weft-cni's run is measured against: what any static Go program costs.
package main

func main() {}
