; A misspelt intrinsic: nothing refuses it before the linker does.
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm_amdgcn_workitem_id_x()
define amdgpu_kernel void @calls(ptr addrspace(1) %out) {
  %t = call i32 @llvm_amdgcn_workitem_id_x()
  store i32 %t, ptr addrspace(1) %out
  ret void
}
