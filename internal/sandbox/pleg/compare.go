// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"slices"
)

// Compare returns the events between two lists, sorted by the IDs of pods and containers.
func Compare(old, now Pods) []Event {
	var out []Event
	for _, uid := range union(old, now) {
		for _, id := range union(old[uid], now[uid]) {
			for _, kind := range kinds(stateOf(old[uid], id), stateOf(now[uid], id)) {
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

// kinds returns the kinds of events for a change of state.
func kinds(old, now State) []Kind {
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
