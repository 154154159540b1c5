// SPDX-License-Identifier: Apache-2.0

package state

import "encoding/json"

// List is a list of objects of one kind. Before encoding/json encodes or decodes its first value of a type, it inspects
// the type with all types of its fields, but not those with a method of their own. A process of a plugin writes one
// record, of two or three kinds of objects: it inspects only these.
type List[T any] []T

// MarshalJSON encodes the list as a slice.
func (l List[T]) MarshalJSON() ([]byte, error) { return json.Marshal([]T(l)) }
