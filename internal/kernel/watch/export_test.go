// SPDX-License-Identifier: Apache-2.0

package watch

// Heard reads a frame.
func Heard(frame []byte) (Speech, bool) { return heard(frame) }
