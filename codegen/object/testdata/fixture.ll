; Kernels for the tests of package object. How the files beside this one were
; made from it stands in README.md.
target triple = "amdgcn-amd-amdhsa"
@lds = internal addrspace(3) global [1024 x float] poison, align 16
@table = internal addrspace(4) constant [4 x i32] [i32 3, i32 5, i32 7, i32 11], align 16
declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16>, <4 x i16>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)
define amdgpu_kernel void @hidden(ptr addrspace(1) noalias writeonly %out, i32 %n) "amdgpu-flat-work-group-size"="128,128" {
  %i = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %g = getelementptr i8, ptr addrspace(4) %i, i64 12
  %s = load i16, ptr addrspace(4) %g
  %z = zext i16 %s to i32
  %r = add i32 %z, %n
  store i32 %r, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @lookup(ptr addrspace(1) %out, i32 %k) "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" {
  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %k
  %v = load i32, ptr addrspace(4) %p
  %a = alloca [64 x i32], addrspace(5)
  %q = getelementptr [64 x i32], ptr addrspace(5) %a, i32 0, i32 %k
  store volatile i32 %v, ptr addrspace(5) %q
  %w = load volatile i32, ptr addrspace(5) %q
  store i32 %w, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @mfma(ptr addrspace(1) %a, ptr addrspace(1) %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <4 x i16>, ptr addrspace(1) %a, i32 %t
  %x = load <4 x i16>, ptr addrspace(1) %pa
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %x, <4 x i16> %x, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %d2 = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16bf16.1k(<4 x i16> %x, <4 x i16> %x, <4 x float> %d, i32 0, i32 0, i32 0)
  %l = getelementptr [1024 x float], ptr addrspace(3) @lds, i32 0, i32 %t
  %e = extractelement <4 x float> %d2, i32 1
  store float %e, ptr addrspace(3) %l
  fence syncscope("workgroup") seq_cst
  %f = load float, ptr addrspace(3) %l
  call void asm sideeffect "; use", "~{a19}"()
  %po = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %f, ptr addrspace(1) %po
  ret void
}
define amdgpu_kernel void @reserved() "amdgpu-waves-per-eu"="2,2" "amdgpu-no-implicitarg-ptr" {
  ret void
}
attributes #0 = { "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="256,256" "amdgpu-waves-per-eu"="1,8" }
