// SPDX-License-Identifier: Apache-2.0

package store

import "time"

// Born is a new object with its time of birth, where nobody said one and it matters: of two pools with the same
// addresses the older one gives them. An API server does the same.
func (o Object) Born(now time.Time) (Object, error) {
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
