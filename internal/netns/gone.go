// SPDX-License-Identifier: Apache-2.0

package netns

import "errors"

// Gone reports whether the namespace of that ID is no longer at path. What cannot be found out counts as no.
func Gone(path string, id uint64) bool {
	ns, err := Open(path)
	if err != nil {
		return errors.Is(err, ErrGone)
	}
	defer func() { _ = ns.Close() }()
	at, err := ns.ID()
	return err == nil && at != id
}

// At reports whether the namespace of that ID is at path.
func At(path string, id uint64) bool {
	ns, err := Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = ns.Close() }()
	at, err := ns.ID()
	return err == nil && at == id
}
