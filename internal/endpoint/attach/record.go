// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// RecordVersion is the form of a record that this program writes. A record of a newer form is refused and never
// deleted.
const RecordVersion = 1

// ErrNewer is wrapped by the error about a record that a newer program wrote.
var ErrNewer = errors.New("record of a newer version")

// Stage says how far an attachment is.
type Stage string

// The stages of an attachment.
const (
	Pending   Stage = "pending"   // promised; what a killed call leaves, it is undone
	Done      Stage = "done"      // the caller has the result
	Releasing Stage = "releasing" // its DEL has begun; it is undone
)

// Record is what is remembered of one attachment, or of a virtual machine in a pod: enough to undo it with nothing else
// at hand.
type Record struct {
	Version int    `json:"version"`
	Boot    string `json:"boot,omitempty"` // the boot id of the machine when it was written
	Stage   Stage  `json:"stage"`
	// Serial tells two ADDs of one key apart.
	Serial  int64         `json:"serial"` // unix nanoseconds of the ADD
	Request model.Request `json:"request"`
	NetnsID uint64        `json:"netnsID,omitempty"`
	// Network is the configuration as the ADD had it.
	Network model.Network `json:"network"`
	// Acts are what was done, or was about to be done, in this order. Undo goes backwards.
	Acts []Act `json:"acts,omitempty"`
	// Result is the last result: of a done record, the one the caller has.
	Result *model.Result `json:"result,omitempty"`
	// Standby: another attachment uses the addresses, and here nothing leads to them or speaks for them. Withheld is what
	// does, as it is to be applied when they are taken over.
	Standby  bool            `json:"standby,omitempty"`
	Withheld *state.Fragment `json:"withheld,omitempty"`
	// Turning: the Activate or Retire that has made it so has not come to its end.
	Turning bool `json:"turning,omitempty"`
	// Looks is what was seen of the interface.
	Looks Looks `json:"looks,omitzero"`
	// Machine is set in the record of a virtual machine.
	Machine *Machine `json:"machine,omitempty"`
}

// Looks is what was seen of an interface that plugins have made without saying so.
type Looks struct {
	// Tap: a foreign plugin has made the interface, as a macvtap.
	Tap bool `json:"tap,omitempty"`
	// End is the node's end of an interface that a foreign plugin has made, where it has one; EndPort tells that it is a
	// bridge's port.
	End     string `json:"end,omitempty"`
	EndPort bool   `json:"endPort,omitempty"`
	// Device is the PCI address of the interface where a program drives that by itself, and no link of it is in the
	// container.
	Device string `json:"device,omitempty"`
}

// ActKind says what an act is.
type ActKind string

// The kinds of acts.
const (
	ActIPAM  ActKind = "ipam"  // the plugin's IPAM section was asked for addresses
	ActApply ActKind = "apply" // a fragment was applied
	ActExec  ActKind = "exec"  // a foreign plugin was executed
	ActSave  ActKind = "save"  // a delegate was written down

	ActMachine ActKind = "machine" // a virtual machine was given what it needs of its pod
)

// Act is one step of an ADD. It is promised before it is done.
type Act struct {
	Kind ActKind `json:"kind"`
	// Plugin indexes Network.Plugins, for ipam and exec.
	Plugin int `json:"plugin"`
	// IPs are what IPAM gave.
	IPs []model.IP `json:"ips,omitempty"`
	// Fragment is what was applied.
	Fragment *state.Fragment `json:"fragment,omitempty"`
	// Restore is what was there before of what the fragment changes. It is applied when the fragment has been removed.
	Restore *state.Fragment `json:"restore,omitempty"`
	// Files are written before the kernel is touched and go with the act.
	Files []plugin.File `json:"files,omitempty"`
	// Guests is what guests are told on wires that the fragment makes.
	Guests []model.Guest `json:"guests,omitempty"`
	// Fresh names the fragment's shared links that were not there before.
	Fresh []string `json:"fresh,omitempty"`
	// State says how far the act of a machine's interface is. Other acts have none: all of a record are undone, or none,
	// and what a machine's interfaces have in common goes with the last of them.
	State ActState `json:"state,omitempty"`
	// Interface is the machine's that the act is about; nil in the act of what all its interfaces need of the pod.
	Interface *MachineInterface `json:"interface,omitempty"`
	// Given is the device of the node that the machine's user was given.
	Given *Given `json:"given,omitempty"`
}

// Key is the attachment that the record is about.
func (r Record) Key() model.AttachmentKey { return r.Request.Key() }

// Since is when the ADD began.
func (r Record) Since() time.Time { return time.Unix(0, r.Serial) }

// Fragment is everything that the record's acts applied, in one.
func (r Record) Fragment() state.Fragment {
	var f state.Fragment
	for _, act := range r.Acts {
		if act.Fragment == nil {
			continue
		}
		f.Owner = act.Fragment.Owner
		f.Merge(*act.Fragment)
	}
	return f
}

// Guests is what guests are told on wires that the record's acts have made.
func (r Record) Guests() []model.Guest {
	var out []model.Guest
	for _, act := range r.Acts {
		out = append(out, act.Guests...)
	}
	return out
}

// Joins are the joins that the record's acts have made in the pod.
func (r Record) Joins() []state.Join {
	var out []state.Join
	for _, act := range r.Acts {
		if act.Fragment != nil {
			out = append(out, act.Fragment.Pod.Joins...)
		}
	}
	return out
}

// Memory keeps records. The ledger (agent) and the journal (standalone) implement it.
type Memory interface {
	// Put writes records of one container, of one stage. An error leaves a record as it was before; the ledger, which
	// alone is handed several, writes all of them or none.
	Put(records ...Record) error
	Get(k model.AttachmentKey) (Record, bool, error)
	// List gives all records that can be read; the error joins what is wrong with the others.
	List() ([]Record, error)
	Delete(k model.AttachmentKey) error
}

// Encode is the stored form of a record.
func Encode(r Record) ([]byte, error) {
	r.Version = RecordVersion
	b, err := json.Marshal(r)
	if err != nil {
		return nil, model.Faultf(model.CodeInternal, "", "record %s: %w", r.Key(), err)
	}
	return b, nil
}

// CheckStored refuses the stored form of a record that a newer program wrote, without reading all of it.
func CheckStored(where string, b []byte) error {
	if bytes.HasPrefix(b, []byte(`{"version":`+strconv.Itoa(RecordVersion)+`,`)) {
		return nil
	}
	if _, err := Decode(where, b); errors.Is(err, ErrNewer) {
		return err
	}
	return nil
}

// Decode reads the stored form; where names the place in errors.
func Decode(where string, b []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(b, &r)
	if err == nil && r.Version == RecordVersion {
		return r, nil
	}
	var v struct {
		Version int `json:"version"`
	}
	if json.Unmarshal(b, &v) == nil && v.Version > RecordVersion {
		return Record{}, model.Faultf(model.CodeIO, "start the newer weft, or let it DEL the attachment",
			"%s: version %d, this program knows %d: %w", where, v.Version, RecordVersion, ErrNewer)
	}
	if err == nil {
		err = errors.New("no version")
	}
	return Record{}, model.Faultf(model.CodeIO, "", "%s: unreadable record: %w", where, err)
}

// addresses are what a record's acts were given.
func addresses(rec Record) []netip.Addr {
	var out []netip.Addr
	for _, act := range rec.Acts {
		for _, ip := range act.IPs {
			out = append(out, ip.Address.Addr())
		}
	}
	return out
}

func sharedTables(f state.Fragment) []state.Table {
	var out []state.Table
	for _, t := range f.Host.Tables {
		if t.Shared {
			out = append(out, t)
		}
	}
	return out
}

// sum is fragments in one, which shares nothing with them.
func sum(owner string, parts ...state.Fragment) state.Fragment {
	f := state.Fragment{Owner: owner}
	for _, part := range parts {
		f.Merge(part)
	}
	return f
}

// pod is the record's pod, the zero value where it is none's.
func (r Record) pod() model.PodRef {
	if o := r.Request.Origin; o != nil {
		return o.Pod
	}
	var pod model.PodRef
	pod.Namespace, _ = r.Request.Arg("K8S_POD_NAMESPACE")
	pod.Name, _ = r.Request.Arg("K8S_POD_NAME")
	pod.UID, _ = r.Request.Arg("K8S_POD_UID")
	return pod
}
