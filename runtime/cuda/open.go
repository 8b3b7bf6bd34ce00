package cuda

import "github.com/kiln-project/kiln/runtime/internal/driver"

// What package driver has, under names that other packages can use.
type (
	Module   = driver.Module
	Function = driver.Function
	Library  = driver.Library
	Options  = driver.Options
	Device   = driver.Device
	Info     = driver.Info
	Buffer   = driver.Buffer
	Pinned   = driver.Pinned
	Stream   = driver.Stream
	Event    = driver.Event
	Launch   = driver.Launch
	Param    = driver.Param
	Sequence = driver.Sequence
	Graph    = driver.Graph
	Exec     = driver.Exec

	Error         = driver.Error
	LaunchError   = driver.LaunchError
	CompileError  = driver.CompileError
	LeakError     = driver.LeakError
	NotFoundError = driver.NotFoundError
)

// For errors.Is.
var (
	ErrNoDevice    = driver.ErrNoDevice
	ErrOutOfMemory = driver.ErrOutOfMemory
	ErrDeviceLost  = driver.ErrDeviceLost
	ErrWrongImage  = driver.ErrWrongImage
	ErrStuck       = driver.ErrStuck
	ErrClosed      = driver.ErrClosed
)

// Open loads libcuda.
func Open(o Options) (*Library, error) { return driver.Open(driver.CUDA, o) }

// VersionText writes what Library.Version returns: 13.0.
func VersionText(v int) string { return driver.VersionText(driver.CUDA, v) }
