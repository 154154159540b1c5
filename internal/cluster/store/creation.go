// SPDX-License-Identifier: Apache-2.0

package store

import "time"

// WithCreationTime returns a new object with its creation time, if it has none and needs it: of two overlapping pools
// the older one allocates addresses. An API server does the same.
func (o Object) WithCreationTime(now time.Time) (Object, error) {
	if !o.Key.Of(AddressPools()) {
		return o, nil
	}
	return o.Edited(func(fields map[string]any) error {
		meta, err := child(fields, "metadata")
		if err != nil {
			return err
		}
		if meta["creationTimestamp"] == nil {
			meta["creationTimestamp"] = now.UTC().Format(time.RFC3339)
		}
		return nil
	})
}
