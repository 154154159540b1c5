// SPDX-License-Identifier: Apache-2.0

package attach

// failpoint, which may be nil, is called before and after each thing that is done, by that thing's name. Its error is
// the thing's error: for fault tests.
type failpoint func(name string) error

// at is the moment of that name.
func (f failpoint) at(name string) error {
	if f == nil {
		return nil
	}
	return f(name)
}
