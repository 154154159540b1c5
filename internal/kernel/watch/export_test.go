// SPDX-License-Identifier: Apache-2.0

package watch

// DecodeFrame decodes a frame.
func DecodeFrame(frame []byte) (HeardAnnouncement, bool) { return decodeFrame(frame) }
