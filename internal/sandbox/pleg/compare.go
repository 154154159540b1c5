// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"slices"
)

// Compare says what happened between two lists, pods and containers in the order of their ids.
func Compare(old, now Pods) []Event {
	var out []Event
	for _, uid := range union(old, now) {
		for _, id := range union(old[uid], now[uid]) {
			for _, kind := range between(stateOf(old[uid], id), stateOf(now[uid], id)) {
				out = append(out, Event{PodUID: uid, ContainerID: id, Kind: kind})
			}
		}
	}
	return out
}

func union[V any](a, b map[string]V) []string {
	keys := maps.Clone(a)
	if keys == nil {
		keys = map[string]V{}
	}
	maps.Copy(keys, b)
	return slices.Sorted(maps.Keys(keys))
}

func stateOf(m map[string]State, id string) State {
	if s, ok := m[id]; ok {
		return s
	}
	return NonExistent
}

func between(old, now State) []Kind {
	if old == now {
		return nil
	}
	switch now {
	case Running:
		return []Kind{ContainerStarted}
	case Exited:
		return []Kind{ContainerDied}
	case NonExistent:
		if old == Exited {
			return []Kind{ContainerRemoved}
		}
		return []Kind{ContainerDied, ContainerRemoved}
	}
	return []Kind{ContainerChanged}
}
